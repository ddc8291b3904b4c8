-- Triggers keep the sql_mode that they are made in: what is too long must fail, and not be cut.
SET @unstale_sql_mode = @@SESSION.sql_mode, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION lock_wait_timeout = 1;
SET NAMES utf8mb4;
DELIMITER $$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_insert_a989b43156064f3e` AFTER INSERT ON `images` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF CAST(NEW.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
      INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(NEW.`id` AS CHAR CHARACTER SET utf8mb4), JSON_OBJECT('value', JSON_ARRAY(CAST(NEW.`position` AS CHAR CHARACTER SET utf8mb4))));
    END IF;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_update_178c6ece2764f3bb` AFTER UPDATE ON `images` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF NOT (OLD.`id` <=> NEW.`id`
      AND OLD.`variant_id` <=> NEW.`variant_id`
      AND OLD.`position` <=> NEW.`position`) THEN
      IF CAST(NEW.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
        INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(NEW.`id` AS CHAR CHARACTER SET utf8mb4), JSON_OBJECT('value', JSON_ARRAY(CAST(OLD.`position` AS CHAR CHARACTER SET utf8mb4), CAST(NEW.`position` AS CHAR CHARACTER SET utf8mb4))));
      END IF;
      IF NOT (OLD.`id` <=> NEW.`id`) THEN
        IF CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
          INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4), JSON_OBJECT('value', JSON_ARRAY(CAST(OLD.`position` AS CHAR CHARACTER SET utf8mb4), CAST(NEW.`position` AS CHAR CHARACTER SET utf8mb4))));
        END IF;
      END IF;
    END IF;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_9b0fc3cfaf492141` AFTER DELETE ON `images` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
      INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4), JSON_OBJECT('value', JSON_ARRAY(CAST(OLD.`position` AS CHAR CHARACTER SET utf8mb4))));
    END IF;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_bf8d8930a54dd6b0` AFTER DELETE ON `labels` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    BEGIN
      DECLARE unstale_number INT;
      DECLARE unstale_message TEXT CHARACTER SET utf8mb4;
      DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
      BEGIN
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;
          GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;
        END;
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;
          INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version) VALUES ('product', LEFT('', 256), NULL, UTC_TIMESTAMP(6), 0, 'capture_failed', CONCAT('a trigger of labels: ', COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), '');
        END;
      END;
    BEGIN
      DECLARE unstale_number INT;
      DECLARE unstale_message TEXT CHARACTER SET utf8mb4;
      DECLARE EXIT HANDLER FOR SQLEXCEPTION
      BEGIN
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;
          GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;
        END;
        IF CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
          INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version) VALUES ('product', LEFT(CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4), 256), NULL, UTC_TIMESTAMP(6), 0, 'capture_failed', CONCAT('a trigger of labels: ', COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), '');
        END IF;
      END;
      IF CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
        INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4), NULL);
      END IF;
    END;
    END;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_9499063697d25488` AFTER DELETE ON `categories` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
      INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('category', CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4), NULL);
    END IF;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_update_67cc58f0b49f0207` AFTER UPDATE ON `offers` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF NOT (OLD.`brand_id` <=> NEW.`brand_id`
      AND OLD.`id` <=> NEW.`id`) THEN
      IF CAST(NEW.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
        INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(NEW.`id` AS CHAR CHARACTER SET utf8mb4), NULL);
      END IF;
      IF NOT (OLD.`id` <=> NEW.`id`) THEN
        IF CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL THEN
          INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CAST(OLD.`id` AS CHAR CHARACTER SET utf8mb4), NULL);
        END IF;
      END IF;
    END IF;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_update_96b324d98b19d7d5` AFTER UPDATE ON `prices` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF NOT (OLD.`id` <=> NEW.`id`
      AND OLD.`amount` <=> NEW.`amount`
      AND OLD.`factor` <=> NEW.`factor`
      AND UNIX_TIMESTAMP(OLD.`until`) <=> UNIX_TIMESTAMP(NEW.`until`)
      AND OLD.`a``b` <=> NEW.`a``b`
      AND CAST(OLD.`name` AS BINARY) <=> CAST(NEW.`name` AS BINARY)
      AND CAST((OLD.id) AS BINARY) <=> CAST((NEW.id) AS BINARY)) THEN
      IF CONCAT('', CONVERT((NEW.id) USING utf8mb4)) IS NOT NULL THEN
        INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CONCAT('', CONVERT((NEW.id) USING utf8mb4)), NULL);
      END IF;
      IF NOT (CAST((OLD.id) AS BINARY) <=> CAST((NEW.id) AS BINARY)) THEN
        IF CONCAT('', CONVERT((OLD.id) USING utf8mb4)) IS NOT NULL THEN
          INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('product', CONCAT('', CONVERT((OLD.id) USING utf8mb4)), NULL);
        END IF;
      END IF;
    END IF;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_805fab66cca48b6f` BEFORE DELETE ON `variants` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    INSERT INTO cache_outbox (entity, entity_id, params)
      SELECT 'product', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), JSON_OBJECT('value', JSON_ARRAY(CAST(unstale_child.`position` AS CHAR CHARACTER SET utf8mb4)))
      FROM `images` AS unstale_child
      WHERE unstale_child.`variant_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
    BEGIN
      DECLARE unstale_number INT;
      DECLARE unstale_message TEXT CHARACTER SET utf8mb4;
      DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
      BEGIN
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;
          GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;
        END;
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;
          INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version) VALUES ('product', LEFT('', 256), NULL, UTC_TIMESTAMP(6), 0, 'capture_failed', CONCAT('a trigger of labels: ', COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), '');
        END;
      END;
    BEGIN
      DECLARE unstale_number INT;
      DECLARE unstale_message TEXT CHARACTER SET utf8mb4;
      DECLARE EXIT HANDLER FOR SQLEXCEPTION
      BEGIN
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;
          GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;
        END;
        INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version)
          SELECT 'product', LEFT(CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), 256), NULL, UTC_TIMESTAMP(6), 0, 'capture_failed', CONCAT('a trigger of labels: ', COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), ''
          FROM `labels` AS unstale_child
      WHERE unstale_child.`variant_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
      END;
      INSERT INTO cache_outbox (entity, entity_id, params)
        SELECT 'product', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), NULL
        FROM `labels` AS unstale_child
      WHERE unstale_child.`variant_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
    END;
    END;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_9b49c90f7911562c` BEFORE DELETE ON `products` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    INSERT INTO cache_outbox (entity, entity_id, params)
      SELECT 'product', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), JSON_OBJECT('value', JSON_ARRAY(CAST(unstale_child.`position` AS CHAR CHARACTER SET utf8mb4)))
      FROM `images` AS unstale_child
      JOIN `variants` AS unstale_parent1 ON unstale_child.`variant_id` = unstale_parent1.`id`
      WHERE unstale_parent1.`product_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
    BEGIN
      DECLARE unstale_number INT;
      DECLARE unstale_message TEXT CHARACTER SET utf8mb4;
      DECLARE CONTINUE HANDLER FOR SQLEXCEPTION
      BEGIN
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;
          GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;
        END;
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN END;
          INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version) VALUES ('product', LEFT('', 256), NULL, UTC_TIMESTAMP(6), 0, 'capture_failed', CONCAT('a trigger of labels: ', COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), '');
        END;
      END;
    BEGIN
      DECLARE unstale_number INT;
      DECLARE unstale_message TEXT CHARACTER SET utf8mb4;
      DECLARE EXIT HANDLER FOR SQLEXCEPTION
      BEGIN
        BEGIN
          DECLARE EXIT HANDLER FOR SQLEXCEPTION, SQLWARNING BEGIN END;
          GET DIAGNOSTICS CONDITION 1 unstale_number = MYSQL_ERRNO, unstale_message = MESSAGE_TEXT;
        END;
        INSERT INTO cache_outbox_dead (entity, entity_id, params, created_at, first_id, reason, error, map_version)
          SELECT 'product', LEFT(CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), 256), NULL, UTC_TIMESTAMP(6), 0, 'capture_failed', CONCAT('a trigger of labels: ', COALESCE(unstale_message, 'not known why'), ' (', COALESCE(unstale_number, 0), ')'), ''
          FROM `labels` AS unstale_child
      JOIN `variants` AS unstale_parent1 ON unstale_child.`variant_id` = unstale_parent1.`id`
      WHERE unstale_parent1.`product_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
      END;
      INSERT INTO cache_outbox (entity, entity_id, params)
        SELECT 'product', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), NULL
        FROM `labels` AS unstale_child
      JOIN `variants` AS unstale_parent1 ON unstale_child.`variant_id` = unstale_parent1.`id`
      WHERE unstale_parent1.`product_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
    END;
    END;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_0bc6003bbc3861c6` BEFORE DELETE ON `categories` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    INSERT INTO cache_outbox (entity, entity_id, params)
      WITH RECURSIVE unstale_tree (c0, level) AS (
        (SELECT unstale_child.`id`, 1 FROM `categories` AS unstale_child WHERE unstale_child.`parent_id` = OLD.`id`)
        UNION ALL (SELECT unstale_child.`id`, unstale_tree.level + 1 FROM unstale_tree JOIN `categories` AS unstale_child ON unstale_child.`parent_id` = unstale_tree.c0 AND unstale_tree.level < 15))
      SELECT 'category', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), NULL
      FROM unstale_tree JOIN `categories` AS unstale_child ON unstale_child.`id` = unstale_tree.c0 AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_delete_3cb89704e11345b5` BEFORE DELETE ON `brands` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    INSERT INTO cache_outbox (entity, entity_id, params)
      SELECT 'product', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), NULL
      FROM `offers` AS unstale_child
      WHERE unstale_child.`brand_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
  END IF;
END$$

CREATE DEFINER = 'root'@'localhost' TRIGGER `unstale_update_ce8147be900a1b2a` BEFORE UPDATE ON `brands` FOR EACH ROW
BEGIN
  IF NOT (CAST(@unstale_capture AS BINARY) <=> 'off') THEN
    IF NOT (CAST(OLD.`id` AS BINARY) <=> CAST(NEW.`id` AS BINARY)) THEN
      INSERT INTO cache_outbox (entity, entity_id, params)
        SELECT 'product', CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4), NULL
        FROM `offers` AS unstale_child
      WHERE unstale_child.`brand_id` = OLD.`id` AND CAST(unstale_child.`id` AS CHAR CHARACTER SET utf8mb4) IS NOT NULL;
    END IF;
  END IF;
END$$

DELIMITER ;
SET SESSION sql_mode = @unstale_sql_mode;
